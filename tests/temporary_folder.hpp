// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <random>
#include <string>

namespace temporary_folder {

/// A folder of its own, removed at the end.
class Folder {
  public:
    Folder()
        : path_(std::filesystem::temp_directory_path() /
                ("shardkit_test_" + std::to_string(std::random_device{}()))) {
        std::filesystem::create_directories(path_);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { std::filesystem::remove_all(path_); }
    std::string file(const std::string& name) const { return (path_ / name).string(); }

  private:
    std::filesystem::path path_;
};

}  // namespace temporary_folder
