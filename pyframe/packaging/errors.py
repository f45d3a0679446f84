"""The exception of packages, which `inductor` raises as well."""

from __future__ import annotations

from inductor.package.errors import PackageError as PackageError
