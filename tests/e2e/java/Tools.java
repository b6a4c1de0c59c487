import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.utils.Exit;

/** Runs Kafka's command-line tools one after the other in one JVM: each argument is a file of lines, see below. */
public class Tools {
    private static class Ended extends RuntimeException {}

    private static Integer ended;

    /** First line the class, second line what it reads from standard input, the rest its arguments. */
    public static void main(String[] files) throws Exception {
        Exit.setExitProcedure((code, message) -> {
            ended = ended == null ? code : ended;  // some catch what is thrown here, and end again
            throw new Ended();
        });
        for (String file : files) {
            String[] lines = Files.readString(Path.of(file)).split("\n");
            System.setIn(new ByteArrayInputStream(lines[1].replace("\\n", "\n").getBytes(StandardCharsets.UTF_8)));
            String[] arguments = java.util.Arrays.copyOfRange(lines, 2, lines.length);
            System.out.println("=== " + file + " " + run(lines[0], arguments));
        }
        Runtime.getRuntime().halt(0);
    }

    private static int run(String name, String[] arguments) throws Exception {
        ended = null;
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (java.lang.reflect.InvocationTargetException error) {
            if (error.getCause() instanceof Ended) {
                return ended;
            }
            error.getCause().printStackTrace();
            return -1;
        }
    }
}
