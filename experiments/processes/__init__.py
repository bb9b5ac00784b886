"""The processes of `attn`: how one is started, its environment, and the signals that end it."""
