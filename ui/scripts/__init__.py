"""Interfaces for programs: named endpoints, plain HTTP, MCP, and the page of tokens."""
