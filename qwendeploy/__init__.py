"""qwendeploy: what to run on this GPU box for Qwen3.6-27B, what it will do, and whether it did."""

__version__ = "0.1.0"
