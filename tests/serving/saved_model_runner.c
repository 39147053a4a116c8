/* Runs signatures of a SavedModel through TensorFlow's C API, as a server without Python does.
 *
 *   saved_model_runner MODEL_DIR REQUESTS RESPONSES [OP_LIBRARY...]
 *
 * REQUESTS holds one request after the other: the number of inputs, for each its name and its tensor; then the
 * number of outputs and the name of each. RESPONSES gets for each request a TF_Code and a message and, if the code
 * is 0, the tensors of the outputs. Numbers are int32 in the machine's order unless said otherwise.
 *   name, message: length, bytes ("operation:index")
 *   tensor: TF_DataType, rank, int64 dimensions, then the values; a string is an int64 length and its bytes
 * Failures to read or load go to stderr and end with status 1.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

#define MOST_TENSORS 32
#define MOST_DIMENSIONS 8
#define LONGEST_NAME 512

static void stop(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void read_bytes(FILE *file, void *into, size_t size) {
  if (size && fread(into, size, 1, file) != 1) stop("requests", "end in the middle of one");
}

static int32_t read_count(FILE *file, int32_t most) {
  int32_t count;
  read_bytes(file, &count, sizeof count);
  if (count < 0 || count > most) stop("requests", "a count out of range");
  return count;
}

static void write_bytes(FILE *file, const void *from, size_t size) {
  if (size && fwrite(from, size, 1, file) != 1) stop("responses", "cannot be written");
}

static void write_int32(FILE *file, int32_t number) { write_bytes(file, &number, sizeof number); }

static TF_Output read_output(FILE *file, TF_Graph *graph) {
  char name[LONGEST_NAME + 1];
  int32_t length = read_count(file, LONGEST_NAME);
  read_bytes(file, name, length);
  name[length] = 0;
  char *colon = strrchr(name, ':');
  if (!colon) stop(name, "has no index");
  *colon = 0;
  TF_Output output = {TF_GraphOperationByName(graph, name), atoi(colon + 1)};
  if (!output.oper) stop(name, "no such operation in the graph");
  return output;
}

static void forget(void *data, size_t size, void *unused) { free(data); }

static TF_Tensor *read_tensor(FILE *file) {
  int32_t type;
  read_bytes(file, &type, sizeof type);
  int32_t rank = read_count(file, MOST_DIMENSIONS);
  int64_t dims[MOST_DIMENSIONS], count = 1;
  read_bytes(file, dims, rank * sizeof dims[0]);
  for (int k = 0; k < rank; k++) count *= dims[k];
  size_t size = count * TF_DataTypeSize(type == TF_STRING ? TF_INT8 : type);
  if (type == TF_STRING) size = count * sizeof(TF_TString);
  void *data = malloc(size ? size : 1);
  if (!data) stop("requests", "no memory for a tensor");
  if (type != TF_STRING) {
    read_bytes(file, data, size);
    return TF_NewTensor(type, dims, rank, data, size, forget, NULL);
  }
  TF_TString *strings = data;
  for (int64_t k = 0; k < count; k++) {
    int64_t length;
    read_bytes(file, &length, sizeof length);
    TF_TString_Init(&strings[k]);
    read_bytes(file, TF_TString_ResizeUninitialized(&strings[k], length), length);
  }
  return TF_NewTensor(type, dims, rank, data, size, forget, NULL);
}

static void write_tensor(FILE *file, TF_Tensor *tensor) {
  TF_DataType type = TF_TensorType(tensor);
  int rank = TF_NumDims(tensor);
  write_int32(file, type);
  write_int32(file, rank);
  for (int k = 0; k < rank; k++) {
    int64_t dim = TF_Dim(tensor, k);
    write_bytes(file, &dim, sizeof dim);
  }
  if (type != TF_STRING) {
    write_bytes(file, TF_TensorData(tensor), TF_TensorByteSize(tensor));
    return;
  }
  const TF_TString *strings = TF_TensorData(tensor);
  for (int64_t k = 0; k < TF_TensorElementCount(tensor); k++) {
    int64_t length = TF_TString_GetSize(&strings[k]);
    write_bytes(file, &length, sizeof length);
    write_bytes(file, TF_TString_GetDataPointer(&strings[k]), length);
  }
}

static void answer(FILE *requests, FILE *responses, TF_Graph *graph, TF_Session *session, TF_Status *status) {
  TF_Output inputs[MOST_TENSORS], outputs[MOST_TENSORS];
  TF_Tensor *given[MOST_TENSORS], *found[MOST_TENSORS] = {NULL};
  int32_t num_inputs = read_count(requests, MOST_TENSORS);
  for (int k = 0; k < num_inputs; k++) {
    inputs[k] = read_output(requests, graph);
    given[k] = read_tensor(requests);
  }
  int32_t num_outputs = read_count(requests, MOST_TENSORS);
  for (int k = 0; k < num_outputs; k++) outputs[k] = read_output(requests, graph);

  TF_SessionRun(session, NULL, inputs, given, num_inputs, outputs, found, num_outputs, NULL, 0, NULL, status);
  const char *message = TF_Message(status);
  write_int32(responses, TF_GetCode(status));
  write_int32(responses, strlen(message));
  write_bytes(responses, message, strlen(message));
  for (int k = 0; k < num_inputs; k++) TF_DeleteTensor(given[k]);
  if (TF_GetCode(status) != TF_OK) return;
  for (int k = 0; k < num_outputs; k++) {
    write_tensor(responses, found[k]);
    TF_DeleteTensor(found[k]);
  }
}

int main(int argc, char **argv) {
  if (argc != 4) stop(argv[0], "MODEL_DIR REQUESTS RESPONSES");
  TF_Status *status = TF_NewStatus();
  TF_Graph *graph = TF_NewGraph();
  TF_SessionOptions *options = TF_NewSessionOptions();
  const char *tags[] = {"serve"};
  TF_Session *session = TF_LoadSessionFromSavedModel(options, NULL, argv[1], tags, 1, graph, NULL, status);
  if (TF_GetCode(status) != TF_OK) stop(argv[1], TF_Message(status));

  FILE *requests = fopen(argv[2], "rb"), *responses = fopen(argv[3], "wb");
  if (!requests || !responses) stop(argv[2], "cannot open requests and responses");
  int next;
  while ((next = fgetc(requests)) != EOF) {
    ungetc(next, requests);
    answer(requests, responses, graph, session, status);
  }
  if (fclose(responses)) stop(argv[3], "cannot be written");
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteSessionOptions(options);
  TF_DeleteGraph(graph);
  TF_DeleteStatus(status);
  return 0;
}
