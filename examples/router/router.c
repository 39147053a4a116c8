/* Answers each line of standard input with a label and its probability.
 *
 * The model is an export of a classifier that reads raw text. names.h has the names of its tensors:
 * write_names.py writes it. The program needs TensorFlow's C library, and no Python.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"

#include "names.h"

#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

static void stop_on_error(const TF_Status *status) {
  if (TF_GetCode(status) == TF_OK) return;
  fprintf(stderr, "router: %s\n", TF_Message(status));
  exit(1);
}

/* A tensor string[1]; the text must live as long as the tensor. */
static TF_Tensor *make_text(const char *text, size_t length) {
  const int64_t shape[] = {1};
  TF_Tensor *tensor = TF_AllocateTensor(TF_STRING, shape, 1, sizeof(TF_TString));
  TF_TString *string = TF_TensorData(tensor);
  TF_StringInit(string);
  TF_StringAssignView(string, text, length);
  return tensor;
}

static TF_Output find(TF_Graph *graph, const char *operation, int index) {
  TF_Output output = {TF_GraphOperationByName(graph, operation), index};
  if (output.oper) return output;
  fprintf(stderr, "router: the model has no operation %s; make names.h anew\n", operation);
  exit(1);
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: router FOLDER_OF_A_VERSION < texts\n");
    return 1;
  }
  /* Load the model. */
  const char *tags[] = {"serve"};
  TF_Status *status = TF_NewStatus();
  TF_Graph *graph = TF_NewGraph();
  TF_SessionOptions *options = TF_NewSessionOptions();
  TF_Session *session =
      TF_LoadSessionFromSavedModel(options, NULL, argv[1], tags, 1, graph, NULL, status);
  stop_on_error(status);
  const struct { const char *operation; int index; } names[] = {INPUTS};
  TF_Output inputs[COUNT(names)];
  for (int i = 0; i < COUNT(names); i++)
    inputs[i] = find(graph, names[i].operation, names[i].index);
  const TF_Output outputs[] = {find(graph, LABEL), find(graph, PROBABILITIES)};

  /* Answer each line. */
  char *line = NULL;
  size_t size = 0;
  for (ssize_t length; (length = getline(&line, &size, stdin)) != -1;) {
    if (length && line[length - 1] == '\n') length--;
    TF_Tensor *texts[COUNT(names)], *answers[COUNT(outputs)];
    /* A classifier of pairs gets no second text. */
    for (int i = 0; i < COUNT(names); i++) texts[i] = make_text(line, i ? 0 : length);
    TF_SessionRun(session, NULL, inputs, texts, COUNT(names), outputs, answers, COUNT(outputs),
                  NULL, 0, NULL, status);
    stop_on_error(status);
    const TF_TString *label = TF_TensorData(answers[0]);
    const float *probabilities = TF_TensorData(answers[1]);
    float highest = 0;
    for (int64_t i = 0; i < TF_TensorElementCount(answers[1]); i++)
      if (probabilities[i] > highest) highest = probabilities[i];
    printf("%.*s\t%.6f\n", (int)TF_StringGetSize(label), TF_StringGetDataPointer(label), highest);
    fflush(stdout);
    for (int i = 0; i < COUNT(names); i++) TF_DeleteTensor(texts[i]);
    for (int i = 0; i < COUNT(outputs); i++) TF_DeleteTensor(answers[i]);
  }
  free(line);
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteSessionOptions(options);
  TF_DeleteGraph(graph);
  TF_DeleteStatus(status);
  return 0;
}
