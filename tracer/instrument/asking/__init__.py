"""The prompt's way in: template, pictures, ids, and the settings that made them."""
