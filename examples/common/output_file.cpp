// SPDX-License-Identifier: Apache-2.0
#include "output_file.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "input_error.hpp"

namespace program {

OutputFile::OutputFile(const std::string& flag, const std::string& name) : name_(name) {
    if (name.empty()) { return; }
    std::error_code ignored;
    const bool there = std::filesystem::exists(name, ignored);
    if (!std::ofstream(name, std::ios::app)) {
        throw bad_flag(flag, name, std::string("a file that can be written (") + std::strerror(errno) + ")");
    }
    made_here_ = !there;
}

OutputFile::~OutputFile() {
    std::error_code ignored;
    if (made_here_) { std::filesystem::remove(name_, ignored); }
}

void OutputFile::write(std::string_view content) {
    std::ofstream file(name_, std::ios::binary | std::ios::trunc);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    file.close();
    if (!file) { throw std::runtime_error("writing '" + name_ + "' failed: " + std::strerror(errno)); }
    keep();
}

void require_two_files(const OutputFile& json, const OutputFile& plot) {
    std::error_code ignored;
    if (json.wanted() && plot.wanted() && std::filesystem::equivalent(json.name(), plot.name(), ignored)) {
        throw bad_flag("--plot", plot.name(), "another file than that of --json");
    }
}

}  // namespace program
