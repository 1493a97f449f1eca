import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;

import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;

/** Reads lines of a default realm, a principal and rules, between tabs; prints the name that Kafka's class gives, or the kind of refusal. */
public class KerberosNames {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = lines.readLine()) != null) {
            String[] words = line.split("\t", -1);
            List<String> rules = Arrays.asList(words).subList(2, words.length);
            System.out.println(named(words[0], words[1], rules));
        }
    }

    private static String named(String realm, String principal, List<String> rules) {
        KerberosShortNamer namer;
        try {
            namer = KerberosShortNamer.fromUnparsedRules(realm, rules);
        } catch (RuntimeException invalid) {
            return "invalid";
        }
        try {
            return "name " + namer.shortName(KerberosName.parse(principal));
        } catch (Exception nobody) {
            return "nameless";
        }
    }
}
