// What Delta's log and Spark's checkpoints need of S3: a file that appears when it is closed, and only if there is none.
// Delta's own log store for S3 overwrites commits of other drivers, and Spark renames, which on S3 is a check and a copy.
package openmessaging.mirror

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{FileAlreadyExistsException => Conflict}
import java.util.{Iterator => Lines}

import io.delta.storage.S3SingleDriverLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataOutputStream, FileAlreadyExistsException, Path}
import org.apache.hadoop.fs.Options.CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE
import org.apache.hadoop.fs.s3a.RemoteFileChangedException
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager

private class Upload(path: Path, overwrite: Boolean, conf: Configuration)
    extends CancellableFSDataOutputStream(Upload.open(path, overwrite, conf)) {

  override def close(): Unit =
    try super.close()
    catch { case _: RemoteFileChangedException => throw new FileAlreadyExistsException(path.toString) }

  override def cancel(): Unit = abort()
}

private object Upload {
  def open(path: Path, overwrite: Boolean, conf: Configuration): FSDataOutputStream = {
    val file = path.getFileSystem(conf).createFile(path).recursive().overwrite(overwrite)
    (if (overwrite) file else file.must(FS_OPTION_CREATE_CONDITIONAL_OVERWRITE, true)).build()
  }
}

class S3LogStore(conf: Configuration) extends S3SingleDriverLogStore(conf) {
  override def write(path: Path, actions: Lines[String], overwrite: java.lang.Boolean, conf: Configuration): Unit = {
    val file = new Upload(path, overwrite, conf)
    try {
      actions.forEachRemaining(action => file.write(s"$action\n".getBytes(UTF_8)))
      file.close()
    } catch {
      case error: FileAlreadyExistsException => throw new Conflict(error.getMessage)
      case error: Throwable => file.cancel(); throw error
    }
  }
}

class S3Checkpoints(path: Path, conf: Configuration) extends FileSystemBasedCheckpointFileManager(path, conf) {
  override def createAtomic(path: Path, overwrite: Boolean): CancellableFSDataOutputStream =
    new Upload(path, overwrite, conf)
}
