// SPDX-License-Identifier: Apache-2.0
#include "output_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "input_error.hpp"

namespace program {

namespace fs = std::filesystem;

namespace {

/// What stands for another file of this process, though that may be a regular one: it is not replaced.
bool is_of_system(const std::string& name) {
    const std::string path = fs::absolute(name).lexically_normal().string();
    return path.starts_with("/dev/") || path.starts_with("/proc/");
}

/// Where links lead in the end, also to what is not there yet.
fs::path behind_links(fs::path path) {
    constexpr int most = 40;  // as the system follows
    std::error_code ignored;
    for (int i = 0; i < most && fs::is_symlink(fs::symlink_status(path, ignored)); ++i) {
        path = path.parent_path() / fs::read_symlink(path, ignored);
    }
    return path;
}

}  // namespace

OutputFile::OutputFile(const std::string& flag, const std::string& name) : flag_(flag), name_(name) {
    if (name.empty()) { return; }
    std::error_code ignored;
    const fs::file_status status = fs::status(name, ignored);
    if (fs::exists(status) && (fs::is_directory(status) || access(name.c_str(), W_OK) != 0)) {
        throw bad_flag(flag, name,
                       std::string("a file that can be written (") +
                           std::strerror(fs::is_directory(status) ? EISDIR : errno) + ")");
    }
    if (fs::exists(status) && (!fs::is_regular_file(status) || is_of_system(name))) { return; }

    std::error_code unknown;
    target_ = fs::weakly_canonical(behind_links(fs::absolute(name)), unknown);
    if (unknown) { target_ = name; }
    temporary_ = target_.string() + "." + std::to_string(getpid()) + ".part";
    if (!std::ofstream(temporary_)) {
        throw bad_flag(
            flag, name,
            std::string("a file that can be written (its folder takes no new file: ") + std::strerror(errno) + ")");
    }
    fs::remove(temporary_, ignored);
}

void OutputFile::write(std::string_view content) const {
    const bool in_place = target_.empty();
    std::ofstream file(in_place ? fs::path(name_) : temporary_,
                       std::ios::binary | (in_place ? std::ios::app : std::ios::trunc));
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    file.close();
    std::string failure = file ? "" : std::strerror(errno);
    if (!in_place) {
        std::error_code error;
        const fs::file_status before = fs::status(target_, error);
        if (fs::exists(before)) { fs::permissions(temporary_, before.permissions(), error); }
        if (failure.empty()) {
            fs::rename(temporary_, target_, error);
            if (error) { failure = error.message(); }
        }
        if (!failure.empty()) { fs::remove(temporary_, error); }
    }
    if (!failure.empty()) { throw std::runtime_error("writing '" + name_ + "' failed: " + failure); }
}

bool OutputFile::is(const OutputFile& other) const {
    return wanted() && (name_ == other.name_ || (!target_.empty() && target_ == other.target_));
}

void require_two_files(const OutputFile& first, const OutputFile& second) {
    if (second.is(first)) {
        throw bad_flag(second.flag(), second.name(), "another file than that of " + first.flag());
    }
}

}  // namespace program
