"""An agent kernel on Trio. The public names, re-exported; no code lives here."""
