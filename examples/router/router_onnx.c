/* Answers each line of standard input with a label and its probability.
 *
 * The model is an ONNX export of a classifier that reads raw text. The program needs onnxruntime's
 * C library, and no Python.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnxruntime_c_api.h"

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))
enum { MAX_INPUTS = 2 };

static const OrtApi *ort;

static void stop(const char *message) {
  fprintf(stderr, "router: %s\n", message);
  exit(1);
}

static void stop_on_error(OrtStatus *status) {
  if (status) stop(ort->GetErrorMessage(status));
}

/* Returns the number of bytes of the UTF-8 character at the start of a text: as many as there are
 * if it is cut off, and 0 if none starts there. `is_whole` says whether the character is whole. */
static size_t read_character(const unsigned char *text, size_t length, int *is_whole) {
  const unsigned char first = text[0];
  const size_t wanted = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3
                      : first < 0xF5 ? 4 : 0;
  /* The second byte excludes longer forms of short characters, surrogates, and too large numbers. */
  const unsigned char lowest = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned char highest = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  size_t count = wanted ? 1 : 0;
  while (count && count < wanted && count < length && text[count] >= (count == 1 ? lowest : 0x80) &&
         text[count] <= (count == 1 ? highest : 0xBF))
    count++;
  *is_whole = wanted && count == wanted;
  return count;
}

/* Removes the bytes of a text that are no UTF-8, which onnxruntime would refuse, and returns the new
 * length. Predictor and the exports of other formats leave them out, too. */
static size_t keep_utf8(char *text, size_t length) {
  size_t kept = 0;
  for (size_t start = 0; start < length;) {
    int is_whole;
    size_t count = read_character((unsigned char *)text + start, length - start, &is_whole);
    if (is_whole) {
      memmove(text + kept, text + start, count);
      kept += count;
    }
    start += count ? count : 1;
  }
  return kept;
}

/* A tensor string[1]. */
static OrtValue *make_text(OrtAllocator *allocator, const char *text, size_t length) {
  const int64_t shape[] = {1};
  OrtValue *tensor = NULL;
  char *content;
  stop_on_error(ort->CreateTensorAsOrtValue(
      allocator, shape, 1, ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING, &tensor));
  stop_on_error(ort->GetResizedStringTensorElementBuffer(tensor, 0, length, &content));
  memcpy(content, text, length);
  return tensor;
}

static size_t count_elements(const OrtValue *tensor) {
  OrtTensorTypeAndShapeInfo *info;
  size_t count;
  stop_on_error(ort->GetTensorTypeAndShape(tensor, &info));
  stop_on_error(ort->GetTensorShapeElementCount(info, &count));
  ort->ReleaseTensorTypeAndShapeInfo(info);
  return count;
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: router FOLDER_OF_A_VERSION < texts\n");
    return 1;
  }
  /* Load the model. */
  ort = OrtGetApiBase()->GetApi(ORT_API_VERSION);
  if (!ort) stop("the library of onnxruntime is older than the header");
  char path[4096];
  snprintf(path, sizeof(path), "%s/model.onnx", argv[1]);
  OrtEnv *env;
  OrtSessionOptions *options;
  OrtSession *session;
  OrtAllocator *allocator;
  stop_on_error(ort->CreateEnv(ORT_LOGGING_LEVEL_FATAL, "router", &env));
  stop_on_error(ort->CreateSessionOptions(&options));
  stop_on_error(ort->CreateSession(env, path, options, &session));
  stop_on_error(ort->GetAllocatorWithDefaultOptions(&allocator));
  size_t num_inputs;
  char *inputs[MAX_INPUTS];
  stop_on_error(ort->SessionGetInputCount(session, &num_inputs));
  if (num_inputs > MAX_INPUTS) stop("the model reads no raw text; export it with --export_text");
  for (size_t i = 0; i < num_inputs; i++)
    stop_on_error(ort->SessionGetInputName(session, i, allocator, &inputs[i]));
  const char *const outputs[] = {"label", "probabilities"};

  /* Answer each line. */
  char *line = NULL;
  size_t size = 0;
  for (ssize_t length; (length = getline(&line, &size, stdin)) != -1;) {
    if (length && line[length - 1] == '\n') length--;
    length = keep_utf8(line, length);
    OrtValue *texts[MAX_INPUTS], *answers[COUNT(outputs)] = {NULL};
    /* A classifier of pairs gets no second text. */
    for (size_t i = 0; i < num_inputs; i++) texts[i] = make_text(allocator, line, i ? 0 : length);
    stop_on_error(ort->Run(session, NULL, (const char *const *)inputs,
                           (const OrtValue *const *)texts, num_inputs, outputs, COUNT(outputs),
                           answers));
    size_t label_length;
    stop_on_error(ort->GetStringTensorElementLength(answers[0], 0, &label_length));
    char label[label_length + 1];
    stop_on_error(ort->GetStringTensorElement(answers[0], label_length, 0, label));
    float *probabilities, highest = 0;
    stop_on_error(ort->GetTensorMutableData(answers[1], (void **)&probabilities));
    for (size_t i = 0; i < count_elements(answers[1]); i++)
      if (probabilities[i] > highest) highest = probabilities[i];
    printf("%.*s\t%.6f\n", (int)label_length, label, highest);
    fflush(stdout);
    for (size_t i = 0; i < num_inputs; i++) ort->ReleaseValue(texts[i]);
    for (int i = 0; i < COUNT(outputs); i++) ort->ReleaseValue(answers[i]);
  }
  free(line);
  ort->ReleaseSession(session);
  ort->ReleaseSessionOptions(options);
  ort->ReleaseEnv(env);
  return 0;
}
