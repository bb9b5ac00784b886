"""What is measured of heads: maps, roles, distances, importance, rank, gates."""
