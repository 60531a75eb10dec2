import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** The local disk as it is: no .crc files, the umask decides who may read, a rename is a rename or fails. */
public class LocalFiles extends RawLocalFileSystem {
  public void setPermission(Path path, FsPermission permission) {}

  public boolean rename(Path source, Path target) {
    return pathToFile(source).renameTo(pathToFile(target));
  }
}
