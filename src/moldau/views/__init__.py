"""Views: topics that are not stored. What a view says, and the records of its source as the view shows them."""
