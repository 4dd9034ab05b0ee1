// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace program {

/// A result file that is opened before anything is measured, so that an unwritable name costs nothing; an empty name
/// is no file. If nothing is written, a file that was not there before is removed again.
class OutputFile {
  public:
    /// @throws InputError that names the flag, the file and the system's reason
    OutputFile(const std::string& flag, const std::string& name);
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;
    ~OutputFile();

    /// Replaces what the file held.
    /// @throws std::runtime_error when that fails
    void write(std::string_view content);
    /// Somebody else has written it: keep it.
    void keep() noexcept { made_here_ = false; }

    bool wanted() const noexcept { return !name_.empty(); }
    const std::string& name() const noexcept { return name_; }

  private:
    std::string name_;
    bool made_here_ = false;
};

/// @throws InputError when both are one file, under whatever names: the second to be written would replace the first
void require_two_files(const OutputFile& json, const OutputFile& plot);

}  // namespace program
