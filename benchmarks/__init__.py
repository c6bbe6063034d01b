"""Experiments: what is measured, how, and the files that the figures are made from."""
