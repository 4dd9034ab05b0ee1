// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

/// Appends one line per test case to the file named by SHARDKIT_TEST_REPORT, where it is set: tests/run counts
/// cases over all programs from these, and a program that dies keeps what it had written.
class CaseReport final : public doctest::IReporter {
  public:
    explicit CaseReport(const doctest::ContextOptions&) {
        if (const char* path = std::getenv("SHARDKIT_TEST_REPORT")) { file_.open(path, std::ios::app); }
    }

    void test_case_start(const doctest::TestCaseData& test) override {
        name_ = test.m_name;
        start();
    }
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
        line(stats.testCaseSuccess ? "passed" : "failed", name_);
    }
    void test_case_skipped(const doctest::TestCaseData& test) override {
        if (test.m_skip) { line("skipped", test.m_name); }
    }

    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_run_end(const doctest::TestRunStats&) override {}
    void test_case_exception(const doctest::TestCaseException&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData&) override {}
    void log_message(const doctest::MessageData&) override {}

  private:
    void line(const char* result, const std::string& name) {
        if (file_.is_open()) { file_ << result << ' ' << name << std::endl; }
    }
    void start() { line("started", name_); }

    std::ofstream file_;
    std::string name_;
};

DOCTEST_REGISTER_LISTENER("case-report", 1, CaseReport);
