#include "words.h"

#include <fstream>
#include <iostream>
#include <string>

bool show(const char* file, int number) {
  std::ifstream in(file);
  std::string word;
  if (!(in >> word)) return false;
  std::cout << word << " " << number << std::endl;
  return true;
}
