// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <shardkit/checkpoint/file_calls.hpp>

namespace files_in_cache {

/// What was written need not survive the machine.
class InCache : public shardkit::checkpoint::PosixFiles {
  public:
    int sync(int) override { return 0; }
    int sync_folder(const std::string&) override { return 0; }
};

}  // namespace files_in_cache
