"""Shared by all tests: modules beside this file can be imported (pytest puts its folder on the path)."""
