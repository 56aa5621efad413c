"""Channels: how deliveries are sent."""
