"""The subcommands: one module each, found by `cora.cli.app`."""
