"""Interfaces for programs: named endpoints, plain HTTP, MCP (for agents), and the page with access tokens."""
