"""The tasks of MTEB: an adapter by which the package `mteb` evaluates embedding models."""

from official_bert.extension import Extension

EXTENSION = Extension(
    name="mteb_tasks",
    summary="Evaluates embedding models on the tasks of MTEB.",
    public={"MtebEncoder": "official_bert.extensions.mteb_tasks.encoder:MtebEncoder"},
)
