// SPDX-License-Identifier: MIT
#pragma once
// Replaces a file once its new content is complete, for whoever writes one under a name that may
// be in use.

#include "src/base/status.h"
#include "src/base/string.h"

namespace moe {

/// Who may read a new file: its owner alone, or whoever the process lets read its files.
enum class Readers { kOwner, kAsUsual };

/// A file descriptor of a new, empty file in `folder` (which ends with a slash), and its name: the
/// prefix and six random characters. It follows no link and opens no existing file.
Result<int> create_beside(const char* folder, const char* prefix, Readers readers, String* name);

/// The new content is written to a file of its own next to the one that it replaces, which is
/// complete at any time: the old one until commit(), the new one afterwards. Of a symbolic link the
/// target is replaced. One writer at a time, of all processes: a lock file next to it says so.
///
/// Both files are removed by close(). A process that is killed may leave them: `.NAME.moe-lock`,
/// which is empty and locks nothing any more, and `.NAME.moe-XXXXXX`. The next open() for the same
/// file removes them. Of a NAME of more than 200 bytes they have the beginning and a hash. Not
/// thread-safe.
class Replacement {
 public:
  Replacement() = default;
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;
  ~Replacement() { close(); }

  /// Locks the file, which need not exist, and writes nothing. MOE_ERR_IO if another writer has it
  /// open, if it is no regular file or cannot be written, or if there is no such folder.
  Status open(const char* path);
  /// A descriptor for the new content, at the start of an empty file. A second call before commit()
  /// empties the file. The descriptor is valid until commit() or close().
  Status begin(int* file);
  /// Writes it to the disk, with the mode and owner of the file that it replaces, and gives it its
  /// name. After an error begin() may be called again. The lock stays: begin() writes the next one.
  Status commit();
  /// Removes what is not committed, and unlocks.
  void close();
  /// The file that begin() opened.
  const char* written() const { return new_.c_str(); }

 private:
  Status resolve(const char* path);
  Status check_place() const;
  Status lock();
  Status lock_once(bool* again);
  void remove_leftovers() const;
  Status keep_owner();
  void sync_folder() const;

  String target_;  // without symbolic links at its end
  String folder_;
  String prefix_;  // of the names of both files
  String lock_name_;
  String new_;
  int lock_ = -1;
  int file_ = -1;
  int process_ = 0;  // a forked child removes nothing
};

}  // namespace moe
