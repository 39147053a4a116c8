"""DistilBERT: folders of Hugging Face with this model are loaded as BERT."""

from official_bert.extension import Extension

EXTENSION = Extension(
    name="distilbert",
    summary="Loads the folders of DistilBERT models as BERT.",
    hooks={"model_types": "official_bert.extensions.distilbert.model_type:model_types"},
)
