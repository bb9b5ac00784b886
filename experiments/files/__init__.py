"""Files: written so that they survive a power cut, read without trust, and digests of what they hold."""
