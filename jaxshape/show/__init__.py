"""What people look at: the same facts as plain text (`text.py`) and as HTML (`html.py`)."""
