"""A server: answers HTTP requests with one model or several."""

from official_bert.extension import Command, Extension

EXTENSION = Extension(
    name="serve",
    summary="Answers HTTP requests for predictions, embeddings and rankings.",
    commands={
        "serve": Command(
            options="official_bert.extensions.serve.options:ServeOptions",
            function="official_bert.extensions.serve.command:run",
            check="official_bert.extensions.serve.options:check_models",
            summary="Answers HTTP requests with one model or several: trained folders or exports.",
            stage="Use the model",
            example="--model=my_classifier --model=search=my_encoder --port=8501",
        )
    },
)
