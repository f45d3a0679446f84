from tools.database_suite.programs import Collection
_COLLECTION = Collection()
def collection(): return _COLLECTION
