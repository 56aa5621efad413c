"""How deliveries leave the house."""
