"""Small numerical experiments: the cells of tables that train nothing."""
