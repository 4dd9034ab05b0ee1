// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "../../examples/common/output_file.hpp"

namespace benchmarks {

/// Onto standard output, at once.
void print(const std::string& text);

/// What --json and --plot name; nothing is left behind until write().
class ResultFiles {
  public:
    /// @throws InputError when one of them cannot be written, both are one file, or nothing is there that draws
    ResultFiles(const std::string& json, const std::string& plot);

    /// Writes the result, and its picture as benchmarks/charts draws it, with the peers' times in that file.
    /// @throws std::runtime_error when that fails
    void write(const std::string& result, const std::string& peers = "") const;

  private:
    program::OutputFile json_;
    program::OutputFile plot_;
};

/// Whether the peers' file has times of what is planned: a result whose rows have no figures yet.
/// @throws InputError that names the file and says what was expected
void require_peers(const std::string& peers, const std::string& planned);

}  // namespace benchmarks
