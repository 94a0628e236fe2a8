"""Descriptions of mechanisms, whatever domain they measure."""
