"""Measurements of trained models for tables, besides the loss: `measure(run, ...)` of each file returns numbers."""
