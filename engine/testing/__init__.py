"""Tools for testing policies: worlds in which a run takes place, a host that plays them, strategies that draw them."""
