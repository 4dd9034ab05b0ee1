// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <fstream>
#include <ios>
#include <map>
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
    std::string path() const { return path_.string(); }
    std::string file(const std::string& name) const { return (path_ / name).string(); }

  private:
    std::filesystem::path path_;
};

/// Every file below a folder, by its name from there on.
inline std::map<std::string, std::string> contents(const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
        if (!entry.is_regular_file()) { continue; }
        std::ifstream in(entry.path(), std::ios::binary);
        std::string& bytes = files[std::filesystem::relative(entry.path(), folder).string()];
        bytes.resize(entry.file_size());
        in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    return files;
}

}  // namespace temporary_folder
