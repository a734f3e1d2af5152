"""The APIs of other lock libraries, in their own formats on the store.

Moving over is a changed import, and old and new workers exclude each other meanwhile.
"""
