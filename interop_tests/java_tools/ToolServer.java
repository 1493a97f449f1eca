import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Kafka's command-line tools one after another in one JVM, because a JVM start costs more than most tools do.
 *
 * A request is a line of base64 words: class, standard input, arguments. The reply is a line of the exit status and
 * two base64 words, what the tool wrote to stdout and to stderr. The tools themselves are not changed: their main()
 * is called, and their exit and shutdown hooks are carried out at its end.
 */
public final class ToolServer {
    /** Unwinds a tool that asked to exit. Some tools catch it and ask again, so the first status is kept apart. */
    private static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    private static final AtomicReference<Integer> exitStatus = new AtomicReference<>();

    private static String decode(String word) {
        return new String(Base64.getDecoder().decode(word.substring(1)), StandardCharsets.UTF_8);
    }

    private static int run(String name, String[] arguments) {
        List<Runnable> hooks = Collections.synchronizedList(new ArrayList<>());
        Exit.setShutdownHookAdder((title, hook) -> hooks.add(hook));
        exitStatus.set(null);
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failure) {
            if (!(failure.getCause() instanceof Ended)) {
                failure.getCause().printStackTrace();
                exitStatus.compareAndSet(null, 1);
            }
        } catch (ReflectiveOperationException failure) {
            failure.printStackTrace();
            exitStatus.compareAndSet(null, 1);
        }
        for (Runnable hook : List.copyOf(hooks)) {
            hook.run();
        }
        Integer status = exitStatus.get();
        return status == null ? 0 : status;
    }

    public static void main(String[] none) throws Exception {
        PrintStream replies = System.out;
        InputStream requests = System.in;
        Exit.Procedure end = (status, message) -> {
            exitStatus.compareAndSet(null, status);
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        BufferedReader reader = new BufferedReader(new InputStreamReader(requests, StandardCharsets.US_ASCII));
        replies.println("ready");
        replies.flush();
        String line;
        while ((line = reader.readLine()) != null) {
            String[] words = line.split(" ");
            String[] arguments = Arrays.stream(words, 2, words.length).map(ToolServer::decode).toArray(String[]::new);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(decode(words[1]).getBytes(StandardCharsets.UTF_8)));
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            int status = run(decode(words[0]), arguments);
            System.out.flush();
            System.err.flush();
            Base64.Encoder encoder = Base64.getEncoder();
            replies.println(status + " =" + encoder.encodeToString(out.toByteArray())
                + " =" + encoder.encodeToString(err.toByteArray()));
            replies.flush();
        }
    }
}
