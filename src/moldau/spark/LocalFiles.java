// Hadoop's local file system, but it sets permissions without a process. Hadoop starts /bin/chmod for each file that
// it creates, unless its native library is there; a micro-batch creates four files for its checkpoint, more with state.
// local_files.py compiles this source in the JVM.
package moldau;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermission;
import java.util.EnumSet;
import java.util.Set;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Raw());
    }

    public static class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) throws IOException {
            int mode = permission.toShort();
            if (mode >= 01000) {  // java.nio does not know the sticky bit and its like
                super.setPermission(path, permission);
                return;
            }
            PosixFilePermission[] all = PosixFilePermission.values();  // from the owner's read to the others' execute
            Set set = EnumSet.noneOf(PosixFilePermission.class);
            for (int bit = 0; bit < all.length; bit++) {
                if ((mode & (0400 >> bit)) != 0) {
                    set.add(all[bit]);
                }
            }
            Files.setPosixFilePermissions(pathToFile(path).toPath(), set);
        }
    }
}
