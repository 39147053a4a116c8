// Answers each line of standard input with a label and its probability.
//
// The model is an export of a classifier that reads raw text. names.h has the names of its tensors:
// write_names.py writes it. The program needs TensorFlow's C library, and no Python.
package main

/*
#include <stdlib.h>

#include "tensorflow/c/c_api.h"

#include "names.h"

struct name { const char *operation; int index; };
const struct name inputs[] = {INPUTS}, label = {LABEL}, probabilities = {PROBABILITIES};
*/
import "C"

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"slices"
	"unsafe"
)

func stop(message string) {
	fmt.Fprintf(os.Stderr, "router: %s\n", message)
	os.Exit(1)
}

func stopOnError(status *C.TF_Status) {
	if C.TF_GetCode(status) != C.TF_OK {
		stop(C.GoString(C.TF_Message(status)))
	}
}

// makeText returns a tensor string[1].
func makeText(text []byte) *C.TF_Tensor {
	shape := C.int64_t(1)
	tensor := C.TF_AllocateTensor(C.TF_STRING, &shape, 1, C.sizeof_TF_TString)
	content := (*C.TF_TString)(C.TF_TensorData(tensor))
	C.TF_StringInit(content)
	C.TF_StringCopy(content, (*C.char)(unsafe.Pointer(unsafe.SliceData(text))), C.size_t(len(text)))
	return tensor
}

func find(graph *C.TF_Graph, name C.struct_name) C.TF_Output {
	operation := C.TF_GraphOperationByName(graph, name.operation)
	if operation == nil {
		stop("the model has no operation " + C.GoString(name.operation) + "; make names.h anew")
	}
	return C.TF_Output{oper: operation, index: name.index}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: router FOLDER_OF_A_VERSION < texts")
		os.Exit(1)
	}
	// Load the model.
	folder, tag := C.CString(os.Args[1]), C.CString("serve")
	status, graph, options := C.TF_NewStatus(), C.TF_NewGraph(), C.TF_NewSessionOptions()
	session := C.TF_LoadSessionFromSavedModel(options, nil, folder, &tag, 1, graph, nil, status)
	stopOnError(status)
	var inputs []C.TF_Output
	for _, name := range C.inputs {
		inputs = append(inputs, find(graph, name))
	}
	outputs := []C.TF_Output{find(graph, C.label), find(graph, C.probabilities)}

	// Answer each line.
	texts, answers := make([]*C.TF_Tensor, len(inputs)), make([]*C.TF_Tensor, len(outputs))
	reader := bufio.NewReader(os.Stdin)
	for {
		line, err := reader.ReadBytes('\n')
		if err != nil && len(line) == 0 {
			return
		}
		texts[0] = makeText(bytes.TrimSuffix(line, []byte("\n")))
		for i := 1; i < len(texts); i++ { // A classifier of pairs gets no second text.
			texts[i] = makeText(nil)
		}
		C.TF_SessionRun(session, nil, &inputs[0], &texts[0], C.int(len(texts)),
			&outputs[0], &answers[0], C.int(len(answers)), nil, 0, nil, status)
		stopOnError(status)
		label := (*C.TF_TString)(C.TF_TensorData(answers[0]))
		text := C.GoStringN(C.TF_StringGetDataPointer(label), C.int(C.TF_StringGetSize(label)))
		first := (*float32)(C.TF_TensorData(answers[1]))
		probabilities := unsafe.Slice(first, C.TF_TensorElementCount(answers[1]))
		fmt.Printf("%s\t%.6f\n", text, slices.Max(probabilities))
		for _, tensor := range slices.Concat(texts, answers) {
			C.TF_DeleteTensor(tensor)
		}
	}
}
