"""The papers' tables: published numbers beside ours, and a verdict on every claim."""
