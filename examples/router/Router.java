import static java.lang.foreign.ValueLayout.*;

import java.io.*;
import java.lang.foreign.*;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;
import java.util.*;

/**
 * Answers each line of standard input with a label and its probability.
 *
 * The model is an export of a classifier that reads raw text. Names.java has the names of its
 * tensors: write_names.py writes it. The program needs Java 22, TensorFlow's C library, and no
 * Python.
 */
class Router {
  static final int TF_STRING = 7, STRING_BYTES = 24, OUTPUT_BYTES = 16;
  static final MemorySegment NULL = MemorySegment.NULL;
  static final Map<String, MethodHandle> FUNCTIONS = new HashMap<>();
  static SymbolLookup library;

  static void stop(String message) {
    System.err.println(message);
    System.exit(1);
  }

  /** Calls a C function, whose parameters have the types of the arguments. */
  static Object call(MemoryLayout result, String name, Object... arguments) throws Throwable {
    MethodHandle function = FUNCTIONS.get(name);
    if (function == null) {
      var type = result == null ? FunctionDescriptor.ofVoid() : FunctionDescriptor.of(result);
      for (Object argument : arguments)
        type = type.appendArgumentLayouts(switch (argument) {
          case Integer _ -> JAVA_INT;
          case Long _ -> JAVA_LONG;
          default -> ADDRESS;
        });
      function = Linker.nativeLinker().downcallHandle(library.find(name).orElseThrow(), type);
      FUNCTIONS.put(name, function);
    }
    return function.invokeWithArguments(arguments);
  }

  static MemorySegment callForPointer(String name, Object... arguments) throws Throwable {
    return (MemorySegment) call(ADDRESS, name, arguments);
  }

  static void stopOnError(MemorySegment status) throws Throwable {
    if ((int) call(JAVA_INT, "TF_GetCode", status) == 0) return;
    var message = callForPointer("TF_Message", status).reinterpret(Long.MAX_VALUE);
    stop("router: " + message.getString(0));
  }

  /** Returns a tensor string[1]. */
  static MemorySegment makeText(Arena arena, byte[] text) throws Throwable {
    var shape = arena.allocateFrom(JAVA_LONG, 1);
    var tensor = callForPointer("TF_AllocateTensor", TF_STRING, shape, 1, (long) STRING_BYTES);
    var string = callForPointer("TF_TensorData", tensor);
    call(null, "TF_StringInit", string);
    call(null, "TF_StringCopy", string, arena.allocateFrom(JAVA_BYTE, text), (long) text.length);
    return tensor;
  }

  /** Returns an array TF_Output[] for tensors of the graph, such as "serving_text_text_a:0". */
  static MemorySegment find(Arena arena, MemorySegment graph, String... names) throws Throwable {
    var outputs = arena.allocate(OUTPUT_BYTES * names.length, 8);
    for (int i = 0; i < names.length; i++) {
      var parts = names[i].split(":");
      var name = arena.allocateFrom(parts[0]);
      var operation = callForPointer("TF_GraphOperationByName", graph, name);
      if (operation.equals(NULL))
        stop("router: the model has no operation " + parts[0] + "; make Names.java anew");
      outputs.set(ADDRESS, OUTPUT_BYTES * i, operation);
      outputs.set(JAVA_INT, OUTPUT_BYTES * i + 8, Integer.parseInt(parts[1]));
    }
    return outputs;
  }

  /** Returns the bytes of a line without its end, or null at the end of the input. */
  static byte[] readLine(InputStream input) throws IOException {
    var line = new ByteArrayOutputStream();
    int next = input.read();
    if (next == -1) return null;
    for (; next != -1 && next != '\n'; next = input.read()) line.write(next);
    return line.toByteArray();
  }

  public static void main(String[] arguments) throws Throwable {
    if (arguments.length != 1) stop("usage: router FOLDER_OF_A_VERSION < texts");
    var arena = Arena.global();
    try {
      library = SymbolLookup.libraryLookup("libtensorflow_cc.so.2", arena);
    } catch (IllegalArgumentException error) {
      stop("router: " + error.getMessage() + "; set LD_LIBRARY_PATH to its folder");
    }
    // Load the model.
    var status = callForPointer("TF_NewStatus");
    var graph = callForPointer("TF_NewGraph");
    var options = callForPointer("TF_NewSessionOptions");
    var folder = arena.allocateFrom(arguments[0]);
    var tags = arena.allocateFrom(ADDRESS, arena.allocateFrom("serve"));
    var session = callForPointer(
        "TF_LoadSessionFromSavedModel", options, NULL, folder, tags, 1, graph, NULL, status);
    stopOnError(status);
    var inputs = find(arena, graph, Names.INPUTS);
    var outputs = find(arena, graph, Names.LABEL, Names.PROBABILITIES);

    // Answer each line.
    var reader = new BufferedInputStream(System.in);
    var writer = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    int numInputs = Names.INPUTS.length;
    for (byte[] line; (line = readLine(reader)) != null; ) {
      try (var local = Arena.ofConfined()) {
        var texts = local.allocate(ADDRESS, numInputs);
        var answers = local.allocate(ADDRESS, 2);
        // A classifier of pairs gets no second text.
        for (int i = 0; i < numInputs; i++)
          texts.setAtIndex(ADDRESS, i, makeText(local, i == 0 ? line : new byte[0]));
        call(null, "TF_SessionRun", session, NULL, inputs, texts, numInputs, outputs, answers, 2,
            NULL, 0, NULL, status);
        stopOnError(status);
        var label = callForPointer("TF_TensorData", answers.get(ADDRESS, 0));
        long length = (long) call(JAVA_LONG, "TF_StringGetSize", label);
        var text = callForPointer("TF_StringGetDataPointer", label).reinterpret(length);
        var scores = answers.getAtIndex(ADDRESS, 1);
        long bytes = (long) call(JAVA_LONG, "TF_TensorByteSize", scores);
        var probabilities = callForPointer("TF_TensorData", scores).reinterpret(bytes);
        float highest = 0;
        for (float one : probabilities.toArray(JAVA_FLOAT)) highest = Math.max(highest, one);
        var name = new String(text.toArray(JAVA_BYTE), StandardCharsets.UTF_8);
        writer.printf(Locale.ROOT, "%s\t%.6f\n", name, highest);
        for (int i = 0; i < numInputs; i++)
          call(null, "TF_DeleteTensor", texts.getAtIndex(ADDRESS, i));
        for (int i = 0; i < 2; i++) call(null, "TF_DeleteTensor", answers.getAtIndex(ADDRESS, i));
      }
    }
  }
}
