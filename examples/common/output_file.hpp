// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace program {

/// A result file of which it is known before anything is measured that it can be written; an empty name is no file.
/// Nothing is left behind until it is: the content goes into a file beside it, which then takes its name. What is no
/// regular file (/dev/stdout, a pipe) is written to in place.
class OutputFile {
  public:
    /// @throws InputError that names the flag, the file and the system's reason
    OutputFile(const std::string& flag, const std::string& name);

    /// Replaces what the file held.
    /// @throws std::runtime_error when that fails: a regular file holds then what it held before
    void write(std::string_view content) const;

    bool wanted() const noexcept { return !name_.empty(); }
    const std::string& flag() const noexcept { return flag_; }
    const std::string& name() const noexcept { return name_; }
    /// Whether both are wanted and one file, under whatever names.
    bool is(const OutputFile& other) const;

  private:
    std::string flag_;
    std::string name_;
    std::filesystem::path target_;     // behind all links; empty: in place
    std::filesystem::path temporary_;  // beside it
};

/// @throws InputError when both are one file, under whatever names: the second to be written would replace the first
void require_two_files(const OutputFile& first, const OutputFile& second);

}  // namespace program
