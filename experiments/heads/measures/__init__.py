"""Measures of heads: maps, roles, distances, importance, rank, gates."""
