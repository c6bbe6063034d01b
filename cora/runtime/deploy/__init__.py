"""Programs of kernels as folders of libraries, which run without cora: see docs/deploy.md."""

from cora.runtime.deploy.program import KernelCall
from cora.runtime.deploy.write import deploy

__all__ = ["KernelCall", "deploy"]
